import { setDefaultBackendFactory } from 'bullmq'
import { createShapedBackend } from '../../src/index.ts'

// Every Queue, Worker, QueueEvents and FlowProducer that the tests build without a factory of its own gets our backend.
setDefaultBackendFactory(createShapedBackend)
