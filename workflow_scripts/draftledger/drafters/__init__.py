"""What proposes tokens: one kind a file, behind one protocol."""
