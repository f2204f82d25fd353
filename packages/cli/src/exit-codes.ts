/** Exit codes of the command line; docs/cli.md. */
export const EXIT_CODES = {
  done: 0,
  /** A check found something, or the operation failed. */
  failed: 1,
  usage: 2,
  /** Redis cannot be reached, or refuses a command. */
  redis: 3,
  /** No such queue or job. */
  notFound: 4,
  /** The queue has no place, and not all jobs were added. */
  refused: 5,
  interrupted: 130,
} as const
