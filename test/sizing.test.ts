import { expect, test } from 'vitest'
import { InvalidInputError, InvalidRateError, sizeShape } from '../src/index.ts'

const traffic = { rate: '50/s', arrivalsPerSecond: 400, spikeSeconds: 30, jobSeconds: 0.4 } as const

test('the capacity takes in what a spike brings beyond the rate', () => {
  expect(sizeShape(traffic).capacity).toBe(30 * (400 - 50))
})

test('the last job of a full queue waits for capacity / rate', () => {
  expect(sizeShape(traffic).longestWaitSeconds).toBe(10_500 / 50)
})

test('the concurrency covers the time a job runs and the time it is held before its slot', () => {
  expect(sizeShape({ ...traffic, horizonMs: 0 }).concurrency).toBe(20)
  expect(sizeShape(traffic).concurrency).toBe(Math.ceil(50 * 0.45))
  expect(sizeShape({ ...traffic, horizonMs: 250 }).concurrency).toBe(Math.ceil(50 * 0.65))
})

test('rates of any form and unit are counted per second', () => {
  const perMinute = sizeShape({ ...traffic, rate: '3000/min' })
  expect(perMinute).toEqual(sizeShape(traffic))
  expect(sizeShape({ ...traffic, rate: { limit: 5, period: 100 } })).toEqual(perMinute)
})

test('jobs that cost more than one unit leave more slowly', () => {
  expect(sizeShape({ ...traffic, meanCost: 5 })).toEqual(sizeShape({ ...traffic, rate: '10/s' }))
})

test('results are rounded up, but not because of the last digit of a double', () => {
  // In doubles 100 × 0.07 is 7.000000000000001.
  expect(sizeShape({ ...traffic, rate: '100/s', jobSeconds: 0.07, horizonMs: 0 }).concurrency).toBe(7)
  expect(sizeShape({ ...traffic, spikeSeconds: 0.1, arrivalsPerSecond: 53.1, rate: '50/s' }).capacity).toBe(1)
  expect(sizeShape({ ...traffic, spikeSeconds: 1, arrivalsPerSecond: 51.5, rate: '50/s' }).capacity).toBe(2)
})

test('a queue that is never behind still has one place and one job at a time', () => {
  const sizing = sizeShape({ rate: '1/s', arrivalsPerSecond: 0.5, spikeSeconds: 60, jobSeconds: 0 })
  expect(sizing).toEqual({ capacity: 1, longestWaitSeconds: 1, concurrency: 1 })
})

test('wrong numbers are refused by name, with what came', () => {
  expect(() => sizeShape({ ...traffic, rate: '50' })).toThrow(InvalidRateError)
  const wrong = { arrivalsPerSecond: -1, spikeSeconds: Number.NaN, jobSeconds: '1', horizonMs: -5, meanCost: 0 }
  for (const [name, value] of Object.entries(wrong)) {
    const size = () => sizeShape({ ...traffic, [name]: value } as never)
    expect(size, name).toThrow(InvalidInputError)
    expect(size, name).toThrow(`sizeShape: ${name} must be a number >`)
  }
})
