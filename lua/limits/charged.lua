local own_values = use 'limits/own-values'
local queue_limits = use 'limits/queue-limits'
local as_text = use 'redis/as-text'

-- What is kept with a job that is charged under limits, in its field `charged`: which limits they are (ends/unstarted) and,
-- behind a space, until when it may start although it is late (µs), if nothing spaces it out; behind two more its slot (µs) and
-- the members of pools with which it departs, JSON. src/departure/held-job.ts reads it.
local charged = {
  -- Slots that lie this close behind a change, µs, may have been granted before it.
  AHEAD_US = 60000000,
}

-- Names the limits of a shape: another name where these are others, or where those per group count other jobs.
function charged.rules(shape)
  return as_text.us(shape.rules_at) .. ':' .. as_text.us(shape.groups_at)
end

-- Until when a job may start although it is late for its slot, µs; nil if a late start would count in another time than
-- that which was charged. It counts in the same windows until the first of them ends, unless a window begins with it.
-- parts: what it was charged; lock_ms: how long its lock lasts, of which no job is held for more than a part
function charged.start_by(parts, slot, lock_ms)
  local by = slot + lock_ms * 1000 * queue_limits.LOCK_LIFE_HELD
  for _, part in ipairs(parts) do
    local l = part.l
    if l.mode ~= 'off' and l.algorithm ~= 'concurrency' and part.cost ~= 0 then
      if l.algorithm ~= 'fixed-window' or l.align == 'first' or l.service then return nil end
      by = math.min(by, (part.member and part.member.s or part.s).finish)
    end
  end
  return by
end

-- Since when a limit charges the states that it charges now, µs, 0 for ever: its mode may have been set, a state of it
-- reset, or what it allows for one value set.
function charged.since(l)
  if not l.charges_since then
    local changed = redis.call('HMGET', l.control, 'modeAt', 'resetAt')
    l.charges_since = math.max(tonumber(changed[1]) or 0, tonumber(changed[2]) or 0)
    if l.changed then l.charges_since = math.max(l.charges_since, own_values.since(l.changed)) end
  end
  return l.charges_since
end

-- Whether a job was certainly charged under rules that are in force since `since` (µs). The first ones of a shape are as
-- old as that (born): jobs that left before it were not charged. What was charged by other rules is not given back: the
-- bucket took it over in part, or not at all.
function charged.under(slot, since, born)
  if since <= born then return slot >= born end
  return slot > since + charged.AHEAD_US
end

-- members: as queue_limits.members returns them, nil for none
function charged.text(rules, by, slot, members)
  if members then return table.concat({ rules, by and as_text.us(by) or '', as_text.us(math.ceil(slot)), members }, ' ') end
  return by and rules .. ' ' .. as_text.us(by) or rules
end

-- The members with which a job departed in that slot, name of the limit -> name of the member; nil if it had none.
function charged.members(text, slot)
  local at, members = string.match(text or '', ' (%d+) (%b{})$')
  return members and tonumber(at) == tonumber(slot) and cjson.decode(members) or nil
end

return charged
