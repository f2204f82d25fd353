local own_values = use 'limits/own-values'
local queue_limits = use 'limits/queue-limits'
local as_text = use 'redis/as-text'

-- Stored with a job that is charged under limits, in its field `charged`: the limits' id (ends/unstarted); after a
-- space, until when it may start although it is late (µs), if nothing spaces it out; after two spaces its slot (µs) and
-- the members of pools with which it departs, JSON. src/departure/held-job.ts reads it.
local charged = {
  -- Slots this close after a change, µs, may have been granted before it.
  AHEAD_US = 60000000,
}

-- An id of a shape's limits: it changes with these, or if those per group count other jobs.
function charged.rules(shape)
  return as_text.us(shape.rules_at) .. ':' .. as_text.us(shape.groups_at)
end

-- Until when a job may start although it is late for its slot, µs; nil if a late start would count in another time than
-- the charged one. It counts in the same windows until the first of them ends, unless a window begins with it. parts:
-- its charges; lock_ms: how long its lock lasts, for a part of which a job is held at most
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

-- Since when a limit charges its current states, µs, 0 for always: its mode may have been set, a state of it reset, or
-- the settings of a value changed.
function charged.since(l)
  if not l.charges_since then
    local changed = redis.call('HMGET', l.control, 'modeAt', 'resetAt')
    l.charges_since = math.max(tonumber(changed[1]) or 0, tonumber(changed[2]) or 0)
    if l.changed then l.charges_since = math.max(l.charges_since, own_values.since(l.changed)) end
  end
  return l.charges_since
end

-- Whether a job was certainly charged under rules that apply since `since` (µs). The first rules of a shape are as old
-- as that (born): jobs that departed before it were not charged. Charges by other rules are not refunded: the bucket
-- took them over in part, or not at all.
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
