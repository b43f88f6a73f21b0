"""Request bodies that can be sent repeatedly, in constant memory."""
