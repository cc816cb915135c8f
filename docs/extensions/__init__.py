"""What makes a site of the documents, which are read on a forge as they are."""
