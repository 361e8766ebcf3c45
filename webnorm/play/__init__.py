"""One kernel's file, watched: a state that terminal and page show."""
