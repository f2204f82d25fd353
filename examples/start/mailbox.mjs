// A mail server that prints when each email arrived, and for whom.
import { SMTPServer } from 'smtp-server'
import { smtpPort } from './settings.mjs'

const server = new SMTPServer({
  disabledCommands: ['AUTH', 'STARTTLS'],
  onData(stream, session, callback) {
    console.log(new Date().toISOString().slice(17, 23), session.envelope.rcptTo[0].address)
    stream.resume().on('end', callback)
  },
})
server.listen(smtpPort, '127.0.0.1', () => console.log(`mail server on port ${server.server.address().port}`))
