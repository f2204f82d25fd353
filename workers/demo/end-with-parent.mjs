/**
 * Loaded into every child of the demonstration: when the parent has ended, however that happened, the child exits too.
 */
process.once('disconnect', () => process.exit(1))
// The listener alone would keep a finished child alive.
process.channel?.unref()
