'use strict'
// Loaded with --require into every process of the suite, forked and threaded processors included. BullMQ's tests, and
// BullMQ itself, fall back to port 6379; the run has a Redis of its own on a free port, so connections are redirected
// at the socket and the options that tests compare still say 6379.
const net = require('node:net')

const DEFAULT_PORT = 6379
const redisPort = Number(process.env.BULLMQ_SUITE_REDIS_PORT)
const { connect } = net.Socket.prototype

function redirect(options) {
  return Number(options?.port) === DEFAULT_PORT ? { ...options, port: redisPort } : options
}

net.Socket.prototype.connect = function connectRedirected(first, ...rest) {
  if (Array.isArray(first)) {
    // net.createConnection hands over its normalized argument list, which it marks with a symbol: keep that array.
    first[0] = redirect(first[0])
    return connect.call(this, first, ...rest)
  }
  return connect.call(this, typeof first === 'object' ? redirect(first) : first, ...rest)
}
