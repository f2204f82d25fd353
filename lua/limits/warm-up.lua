-- A plan over days (`warmUp` of a limit): each value has the quota of its own day of the plan, in windows of the calendar's day.
-- A day counts once something has left on it; the next one begins with the first departure of a later day. The day is what is
-- set for the value (limits/own-values) as `day`, by `warm_up.BY`: value, and began, true once something has left on it. A rate
-- that somebody sets holds the plan at its day.
--   l.plan        the quotas, of which the last may be null; after the last day it stays
--   l.maxRefused  only if less of what started on a day was refused, the next one follows
--   meta:limits:started:<name>, meta:limits:refused:<name>   hashes, value -> jobs of its day, with maxRefused
local warm_up = {
  BY = 'warm-up',
  -- So long after its last departure a value begins anew, ms: 60 days.
  KEPT_MS = 5184000000,
}

local function count_key(base, name, kind)
  return base .. 'meta:limits:' .. kind .. ':' .. name
end

local function share_refused(base, l, value)
  local started = tonumber(redis.call('HGET', count_key(base, l.name, 'started'), value) or nil) or 0
  local refused = tonumber(redis.call('HGET', count_key(base, l.name, 'refused'), value) or nil) or 0
  return started > 0 and refused / started or 0
end

-- The day of a value at a time (µs); second, when the day after it may begin, 0 if this one does with the next departure; third,
-- why. entry: what is set as its day, nil for nothing; held: whether a rate is set
function warm_up.day(base, l, value, entry, held, at)
  local day, ends, why = 1, 0, ''
  if entry then
    day = math.min(entry.value, #l.plan)
    ends = entry.began and select(2, l.verbs.window_of(l, entry.at * 1000)) or 0
    if ends > 0 and at >= ends then
      ends = 0
      local share = not held and l.maxRefused and share_refused(base, l, value) or 0
      if held then why = ', held'
      elseif share > 0 and share >= l.maxRefused then why = string.format(', again: %.3g %% were refused', share * 100)
      else day = math.min(day + 1, #l.plan) end
    end
  end
  return day, ends, 'day ' .. day .. ' of ' .. #l.plan .. why
end

-- The quota of its day applies. own: the limit of a value, to be changed
function warm_up.apply(own, day)
  local quota = own.plan[day]
  if quota == cjson.null then own.mode = 'off' else own.limit = quota end
end

-- What is set as the day of a value from its first departure on, at a slot (µs).
function warm_up.entry(day, why, slot)
  local at = math.floor(slot / 1000)
  return { value = day, by = warm_up.BY, reason = why, at = at, ['until'] = at + warm_up.KEPT_MS, began = true }
end

-- Counting begins anew: with a day, or as nothing is known of a value any more.
function warm_up.forget_counts(base, name, value)
  for _, kind in ipairs({ 'started', 'refused' }) do redis.call('HDEL', count_key(base, name, kind), value) end
end

-- A job has started, or was refused. kind: which of them
function warm_up.note(base, l, value, kind)
  if l.maxRefused then redis.call('HINCRBY', count_key(base, l.name, kind), value, 1) end
end

return warm_up
