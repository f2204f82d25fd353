import { runCommand } from './run-command.ts'

/** The ids of a user other than root. Empty when this process is not root: no other user is needed. */
export interface ProcessUser {
  uid?: number
  gid?: number
}

/** The user for a program that refuses to run as root: `postgres` if it exists, else `nobody`. */
export async function unprivilegedUser(): Promise<ProcessUser> {
  if (process.getuid?.() !== 0) return {}
  for (const name of ['postgres', 'nobody']) {
    try {
      const [uid, gid] = await Promise.all([runCommand('id', ['-u', name]), runCommand('id', ['-g', name])])
      return { uid: Number(uid), gid: Number(gid) }
    } catch {
      // No such user on this machine: the next one.
    }
  }
  throw new Error('expected a user named postgres or nobody to run PostgreSQL as, since it refuses to run as root')
}
