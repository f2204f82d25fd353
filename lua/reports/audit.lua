local held = use 'gate/held'
local service = use 'meter/service'
local as_text = use 'redis/as-text'

-- Departures as they were granted, if `shape.audit` is set: one entry per call, a JSON list of {job id, slot µs, cost,
-- interval µs or 0, burst or 0, {limit: cost, or [cost, member, rule] of a pool} or 0}. A job of a group with a rate adds
-- {group, its interval, its burst}, otherwise 0. Limits with `by` then add {group, {limit: cost}, {limit: value of its
-- keys, if it does not count by group} or 0, {limit: rule}}. A rule is what the value or the member was allowed then, where
-- the limit says something else of all: [interval, burst, schedule], or the limit of a window. Numbers are texts, to keep
-- them exact. `at` of an entry is when the jobs were granted. `held` is for how long something but missing workers had held
-- the queue by then (gate/held), µs.
local audit = {}

-- l: of a value or a member, nil if it is what the limit says of all
local function rule_of(l)
  local of_all = (getmetatable(l) or {}).__index
  if type(of_all) ~= 'table' then return nil end
  local schedule, is_same = l.schedule or nil, l.burst == of_all.burst and l.limit == of_all.limit
  if is_same and l.interval == of_all.interval and schedule == (of_all.schedule or nil) then return nil end
  if not l.interval then return l.limit end
  -- Where feedback has made it slower, the slower of both applies at each time.
  return { as_text.exact(l.interval), l.burst, l.interval == l.configured and schedule or nil }
end

-- What a job took from the limits of its group and keys, nil if there are none. pick: as groups.pick chose it
function audit.of_group(pick)
  if not pick.parts then return nil end
  local taken, values, rules = {}, {}, {}
  for _, part in ipairs(pick.parts) do
    local l = part.l
    if l.mode ~= 'off' then
      taken[l.name] = part.taken
      if l.by[2] or l.by[1] ~= 'group' then values[l.name] = part.value end
      rules[l.name] = rule_of(l)
    end
  end
  return next(taken) and { pick.group, taken, next(values) and values or 0, next(rules) and rules or nil } or nil
end

-- The interval at a slot: a rate may follow the clock. b: a bucket
local function interval_at(b, slot)
  local speed = b.service and service.speed(b.service, slot) or 1
  return as_text.exact(speed > 0 and b.interval / speed or b.interval)
end

-- parts: the parts of limits/queue-limits that were charged for the job, or nil. pick: as groups.pick chose it, or nil
function audit.entry(id, slot, cost, m, parts, pick)
  local limits = 0
  for _, part in ipairs(parts or {}) do
    local l, member = part.l, part.member
    if (member and member.l or l).mode ~= 'off' then
      if limits == 0 then limits = {} end
      limits[l.name] = member and { part.cost, member.name, rule_of(member.l) } or part.cost
    end
  end
  local enforced, own = m and m.mode == 'enforce', pick and audit.of_group(pick)
  return {
    id, as_text.us(math.ceil(slot)), as_text.exact(cost), enforced and interval_at(m, slot) or 0,
    enforced and as_text.exact(m.burst) or 0, limits,
    pick and pick.bucket and { pick.group, interval_at(pick.bucket, slot), as_text.exact(pick.bucket.burst) }
      or (own and 0 or nil),
    own or nil,
  }
end

-- Appends a list of `count` items to a stream, and trims the stream to about `kept` items. An entry's id is the number
-- of items so far: one entry holds all items of a call or a report, so a number of entries would not bound the items.
-- ...: more fields of the entry
function audit.add(key, kept, list, count, ...)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local id = (last and tonumber(string.match(last[1], '^%d+')) or 0) + count
  redis.call('XADD', key, 'MINID', '~', as_text.us(math.max(0, id - kept)), as_text.us(id) .. '-0', 'n', list, ...)
end

-- kept: number of departures
function audit.keep(base, kept, entries, now)
  if #entries == 0 then return end
  local by_now = as_text.us(held.until_now(base .. 'meta:meter', now))
  audit.add(base .. 'meta:audit', kept, cjson.encode(entries), #entries, 'at', as_text.us(now), 'held', by_now)
end

-- A later change of a departure's charge, by `settleCost`: {job id, slot µs, units of the queue's rate, units of its
-- group's rate, {limit: units} or 0, the same of limits per group, when, µs}; negative units were given back. It
-- follows the departure in the same stream and expires with it. Its id counts no departure.
function audit.settled(base, change)
  local key = base .. 'meta:audit'
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if last then redis.call('XADD', key, string.match(last[1], '^%d+') .. '-*', 's', cjson.encode(change)) end
end

return audit
