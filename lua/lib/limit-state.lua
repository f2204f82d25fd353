--- @include "text"
--- @include "limit-bucket"

-- The state of one key of a limit: a few numbers, packed as doubles into one string. It expires when it no longer
-- matters; no decision depends on that, since each uses the stored times.
local LIMIT_SLACK_MS, limit_store = limit_bucket.SLACK_MS, limit_bucket.keep

-- The numbers in order, or nothing if none are stored. packed: the string, false if there is none, nil if it must be
-- read
local function limit_load(key, format, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if packed then return struct.unpack(format, packed) end
end

-- For a bucket: its level, how long ago that was, and how far ahead of now the last charged slot lies (µs; below 0:
-- before it); nothing if nothing is stored.
function limit_bucket.load(key, l, now, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if not packed then return nil end
  local seen, level, ahead = limit_bucket.at(key, l, now, packed, false)
  -- If the clock went back, distances in time are kept.
  local elapsed = math.max(0, now - seen)
  return level, elapsed, ahead - elapsed
end

-- The algorithms by name, each created on first use: a script uses one or two of them.
-- Each is a table of functions over a limit l, as src/limits/definition.ts writes it:
--   open(key, l, now, packed)    the state s of a key; s.now is the time (µs); packed as in limit_load
--   earliest(s, l, cost)         when that cost conforms: µs after s.now, not before it
--   charge(s, l, cost, offset)   charges it for that time, µs after s.now; only in memory if s.planned is set, a table
--                                for the algorithm's own use
--   adjust(s, l, cost)           charges it now unconditionally, or refunds it (cost < 0)
--   remove(s, l, cost)           undoes the last charge, if that differs from a refund
--   charged_until(s, since)      the sum of all charges up to a time; without it, s.start is the start of the window
--   take_back(s, l, cost, slot, budget)  undoes a charge for that time (µs) of what never started, the latest first; false
--                                if it cannot be undone without letting more pass than is allowed, or within the budget
--                                of the call: budget.entries of logs may still be read. Not for places: they follow
--                                their holders
--   begin(s, l, start, used, opening)  for a window: sets its start, what was charged in it, and what of that for its start
--   save(s, l)                   stores what was charged
--   view(s, l)                   units left now, and when all are available again (µs since 1970)
-- What conforms once also conforms later, as long as nothing is charged: so the earliest time at which several limits
-- are met together is the latest of theirs.
local limit_factories, limit_made = {}, {}

local function limit_algorithm(name)
  local verbs = limit_made[name] or limit_factories[name]()
  limit_made[name] = verbs
  return verbs
end

-- Charges unconditionally, or refunds, and stores the state.
local function limit_settle(l, s, cost)
  l.verbs.adjust(s, l, cost)
  l.verbs.save(s, l)
end

-- How much of a charge made at `since` (µs) can be refunded: what has refilled since then may have gone to others, and
-- what refills until the last granted slot has been promised to them.
local function limit_credit(l, s, cost, since)
  if l.interval then return math.max(0, cost - math.max(0, s.now + math.max(0, s.ahead) - since) / l.interval) end
  if l.verbs.charged_until then return math.min(cost, math.max(0, l.verbs.charged_until(s, since) - s.base)) end
  return since >= s.start and cost or 0
end

-- Undoes the last charge, if nothing came after it, and stores the state.
local function limit_undo(l, s, cost)
  local remove = l.verbs.remove
  if remove then remove(s, l, cost) else l.verbs.adjust(s, l, -cost) end
  l.verbs.save(s, l)
end

-- Identifies a state: the same stamp means the same state.
local function limit_stamp(key, algorithm)
  if algorithm == 'sliding-window-log' then return redis.call('ZRANGE', key, -1, -1)[1] or '' end
  return redis.sha1hex(redis.call('GET', key) or '')
end
