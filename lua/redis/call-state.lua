--- @call
-- What modules keep until the end of a call, since a library makes their functions only once:
--   delays     redis/delay-clock, now: Redis's time for it, µs
--   touched    gate/touched
--   bytes      ends/fetched-size
--   finished   ends/finished
--   running    ends/fetched-before
return { delays = {}, now = false, touched = false, bytes = 0, finished = false, running = false }
