-- A plan over days (`warmUp` of a limit): each value has the quota of its own day of the plan, in windows of the
-- calendar's day. A day counts once a job has departed on it; the next one begins with the first departure of a later
-- day. The day is the setting `day` of the value (limits/own-values), by `warm_up.BY` unless someone set it: value, and
-- began, true once a job has departed on it. A rate that someone sets holds the plan at its day, and so does `held`.
--   l.plan        the quotas, the last of which may be null; after the last day it stays
--   l.maxRefused  the next day follows only if a smaller share of the day's starts was refused
--   meta:limits:started:<name>, meta:limits:refused:<name>   hashes, value -> jobs of its day, with maxRefused
local warm_up = {
  BY = 'warm-up',
  -- A value begins again after this time without a departure, ms: 60 days.
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

-- The day of a value at a time (µs); second, when the day after it may begin, 0 if this one does with the next
-- departure; third, why; fourth, by whom. entry: its day setting, nil for none; held: whether the plan is held
function warm_up.day(base, l, value, entry, held, at)
  local day, ends, why = 1, 0, ''
  if entry then
    if not entry.began then return math.min(entry.value, #l.plan), 0, entry.reason, entry.by end
    day = math.min(entry.value, #l.plan)
    ends = select(2, l.verbs.window_of(l, entry.at * 1000))
    if at >= ends then
      ends = 0
      local share = not held and l.maxRefused and share_refused(base, l, value) or 0
      if held then why = ', held'
      elseif share > 0 and share >= l.maxRefused then why = string.format(', again: %.3g %% were refused', share * 100)
      else day = math.min(day + 1, #l.plan) end
    end
  end
  return day, ends, 'day ' .. day .. ' of ' .. #l.plan .. why, warm_up.BY
end

-- Applies the quota of its day. own: the limit of a value, to be changed
function warm_up.apply(own, day)
  local quota = own.plan[day]
  if quota == cjson.null then own.mode = 'off' else own.limit = quota end
end

-- The day setting of a value from its first departure on, at a slot (µs).
function warm_up.entry(day, why, by, slot)
  local at = math.floor(slot / 1000)
  return { value = day, by = by, reason = why, at = at, ['until'] = at + warm_up.KEPT_MS, began = true }
end

-- Counting begins again: with a day, or once a value is forgotten.
function warm_up.forget_counts(base, name, value)
  for _, kind in ipairs({ 'started', 'refused' }) do redis.call('HDEL', count_key(base, name, kind), value) end
end

-- A job has started, or was refused. kind: which of these
function warm_up.note(base, l, value, kind)
  if l.maxRefused then redis.call('HINCRBY', count_key(base, l.name, kind), value, 1) end
end

return warm_up
