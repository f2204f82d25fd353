/** Sends back each message; with the argument `fail`, writes to stderr and exits with 3. */
if (process.argv[2] === 'fail') {
  process.stderr.write('cannot go on\n')
  process.exit(3)
}
process.on('message', (message: { value: number }) => process.send?.({ type: 'echo', value: message.value }))
process.send?.({ type: 'ready', greeting: process.env.GREETING })
