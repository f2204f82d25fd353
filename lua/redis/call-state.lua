--- @call
-- What modules keep until the end of a call, since a library makes their functions only once:
--   base, shaped, now, waits, empty   redis/delay-clock: the last queue that it was asked about, and whether that has a
--              shape; Redis's time, µs; the delayed set in which no other job is due, and one that was found empty
--   touched    gate/wake
--   bytes      ends/fetched
--   finished   ends/finished
--   in_use     groups/queue-groups: queue -> set of its groups -> whether it may have members, as far as that was read
--   running    ends/ends; nil until an end was sent again
--   swept      limits/keys-in-use: the sets that were looked through
--   replaced   ends/cancelled: key of a job that is cancelled for one that this call adds -> {base, id, limit, by: that one}
--   ended      groups/strict: the jobs that this call ends for good -> why they failed, true if they did not
return {
  base = false, shaped = false, now = false, waits = false, empty = false, touched = false, bytes = 0, finished = false,
  in_use = {}, swept = {}, replaced = {}, ended = {},
}
