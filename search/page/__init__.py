"""What does a browser draw? The files of the page, and the document that loads them."""
