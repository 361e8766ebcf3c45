"""The copy: the roofline that every op is timed next to."""
