import { Redis } from 'ioredis'
import { inject } from 'vitest'
import { loadLibrary } from '../../src/redis/libraries.ts'
import { installedScripts } from '../../src/redis/scripts.ts'

// Before each file of a mutant, as the set-up of a run does for all: no call of a test is the one that finds no library.
const client = new Redis(inject('redisUrl'))
await loadLibrary(client, installedScripts().library)
client.disconnect()
