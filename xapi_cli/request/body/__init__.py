"""Request bodies that can be sent twice in constant memory."""
