"""What visitors of a lab's page send: its form, the server that receives it, and where it is kept."""
