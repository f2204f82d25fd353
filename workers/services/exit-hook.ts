import { spawn } from 'node:child_process'

const cleanups = new Set<() => void>()

function runCleanups(): void {
  for (const cleanup of cleanups) {
    try {
      cleanup()
    } catch {
      // One failed clean-up must not keep the others from running: the process is ending.
    }
  }
}

/**
 * Runs `cleanup`, which must be synchronous, when this process exits through `process.exit`, an uncaught error or an
 * empty event loop. A signal without a handler ends a process without this event: see {@link holdLifeline}.
 * Returns a function that cancels the registration.
 */
export function onExit(cleanup: () => void): () => void {
  if (cleanups.size === 0) process.on('exit', runCleanups)
  cleanups.add(cleanup)
  return () => {
    cleanups.delete(cleanup)
    if (cleanups.size === 0) process.off('exit', runCleanups)
  }
}

/**
 * Runs `command` as soon as this process is gone, whatever ended it, SIGKILL included: a shell in a session of its own
 * waits for the end of a pipe that only this process holds open. Returns a function that cancels it.
 * Does nothing where there is no POSIX shell.
 */
export function holdLifeline(command: readonly string[]): () => void {
  if (process.platform === 'win32') return () => {}
  const shell = spawn('/bin/sh', ['-c', 'read -r _; exec "$@"', 'lifeline', ...command], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
    cwd: '/',
  })
  // Without the shell the exit hook remains; a machine without /bin/sh is no reason to refuse to start.
  shell.on('error', () => {})
  shell.stdin.on('error', () => {})
  shell.unref()
  return () => {
    shell.kill('SIGKILL')
  }
}

/** The command that signals `pid`, waits up to 5 s until it is gone, then removes `dir` when one is given. */
export function killCommand(pid: number, signal: 'KILL' | 'QUIT', dir: string | undefined): string[] {
  const script =
    'kill "-$1" "$2"; n=0; while kill -0 "$2" && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done; [ -z "$3" ] || rm -rf "$3"'
  return ['/bin/sh', '-c', script, 'kill', signal, String(pid), dir ?? '']
}
