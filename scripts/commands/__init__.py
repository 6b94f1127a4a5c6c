"""The commands, in three rooms: for those who keep a memory, who train, and who measure."""
