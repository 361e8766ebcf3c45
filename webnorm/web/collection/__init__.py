"""Results from visitors of a lab's page: their schema, the server that receives them, store and page."""
