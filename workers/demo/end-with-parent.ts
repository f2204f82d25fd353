/** Loaded into every child of the demonstration: when the parent is gone, however it ended, so is the child. */
process.once('disconnect', () => process.exit(1))
// The listener alone would keep a child alive that has nothing left to do.
process.channel?.unref()
