import { expect, test } from 'vitest'
import { RoundTrip } from '../../src/worker/dispatcher.ts'

test('the first call, which connects and loads its script, does not count', () => {
  const trip = new RoundTrip()
  expect(trip.ms).toBe(0)
  trip.add(180)
  expect(trip.ms).toBe(0)
  trip.add(2)
  expect(trip.ms).toBe(2)
})

test('one slow call changes nothing; a slower way there does, after eight', () => {
  const trip = new RoundTrip()
  for (const ms of [900, 3, 2, 500, 4]) trip.add(ms)
  expect(trip.ms).toBe(2)
  for (let i = 0; i < 7; i++) trip.add(60 + i)
  expect(trip.ms).toBe(4)
  trip.add(70)
  expect(trip.ms).toBe(60)
})
