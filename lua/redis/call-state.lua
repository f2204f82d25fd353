--- @call
-- State of one call. A library creates its functions only once, so modules cannot keep it in their locals:
--   base, shaped, now, waits, empty   redis/delay-clock: the last queue that was read, and whether it has a shape;
--              Redis's time, µs; the delayed set with no other due job, and one that was found empty
--   touched    gate/wake
--   bytes      ends/fetched
--   finished   ends/finished
--   in_use     groups/queue-groups: queue -> set of its groups -> whether it may have members, as far as read
--   running    ends/ends; nil until an end is resent
--   swept      limits/keys-in-use: the sets that were swept
--   replaced   ends/cancelled: key of a job to cancel for one that this call adds -> {base, id, limit, by: the new job}
--   ended      groups/strict: jobs that this call ends finally -> why they failed, true if they did not
return {
  base = false, shaped = false, now = false, waits = false, empty = false, touched = false, bytes = 0, finished = false,
  in_use = {}, swept = {}, replaced = {}, ended = {},
}
