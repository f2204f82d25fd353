-- Divides a queue's total among its shards by what they report that they need. The shares never exceed the total less
-- what silent shards may hold. sharding/ledger keeps the bound, not this file.
local demand = {
  -- The departure rate is averaged over about this time.
  MEAN_US = 300000,
  -- A shard with no jobs and no arrivals for this long needs nothing. Shorter than a round.
  QUIET_US = 200000,
  -- MORE is relative to the recent departure rate, so that a shard can speed up. The others are parts of an even share:
  -- LEAST is what each shard keeps, HELD what one keeps whose jobs do not wait for the rate.
  MORE = 1.25, LEAST = 0.01, HELD = 0.1,
  -- Waiting jobs should depart within this time, s.
  SOON_S = 0.5,
  -- A share this close to the wanted one stays, because each change costs calls. LACK is the same for a shard that
  -- needs more than it has.
  NEAR = 0.1, LACK = 0.02,
  -- Places stay too, if a shard's free ones are this close to an even part.
  SLACK = 0.25,
}

-- Notes the units per second that departed and arrived between two reports, at the current mean cost.
function demand.note(s, r)
  local span, left = r.at - s.at, r.departed - s.departed
  if s.at > 0 and span > 0 and left >= 0 then
    local per_s, part = r.mean * 1e6 / span, 1 - math.exp(-span / demand.MEAN_US)
    local came = math.max(0, left + r.waiting - (s.waiting or r.waiting))
    if came > 0 then s.came = r.at end
    s.used = s.used + (left * per_s - s.used) * part
    s.arrivals = (s.arrivals or 0) + (came * per_s - (s.arrivals or 0)) * part
  end
  s.departed, s.waiting = r.departed, r.waiting
end

-- The rate at which a shard would soon have no job waiting for the rate, in nano-units per second.
local function need(s, r, even)
  if r.waiting == 0 and s.came and r.at - s.came >= demand.QUIET_US then return 0 end
  -- The departures may have come from a backlog, so arrivals bound them.
  local used = demand.MORE * math.min(s.used, s.arrivals or s.used) * 1e9
  if r.waiting > 0 and not r.wants then return used + demand.HELD * even end
  return used + r.waiting * r.mean * 1e9 / demand.SOON_S
end

-- Gives each shard what it needs and an even part of the rest. If that is too much, shards that need more than their
-- weighted part share what the others leave.
local function shared(needs, weights, pool, count)
  local sum, parts = 0, {}
  for _, n in pairs(needs) do sum = sum + n end
  if sum <= pool then
    for i, n in pairs(needs) do parts[i] = n + (pool - sum) / count end
    return parts
  end
  local open, left, weight, again = {}, pool, 0, true
  for i, w in pairs(weights) do open[i], weight = w, weight + w end
  while again do
    again = false
    local per = left / math.max(weight, 1e-9)
    for i, w in pairs(open) do
      if needs[i] <= per * w then
        parts[i], again = needs[i], true
        left, weight = left - needs[i], weight - w
        open[i] = nil
        break
      end
    end
  end
  for i, w in pairs(open) do parts[i] = left * w / weight end
  return parts
end

-- Whether all may keep what they hold: each has what it needs, or nearly as much as it should.
local function near(wants, needs, held, total)
  local sum, enough = 0, true
  for i, want in pairs(wants) do
    sum = sum + held[i]
    if want > held[i] * (1 + demand.LACK) and needs[i] > held[i] then enough = false end
  end
  return enough and sum <= total and sum >= total * (1 - demand.NEAR)
end

-- Wanted rates by shard, in nano-units per second; nil for a silent shard.
function demand.rates(l, total, reports, held)
  local pool, count, even = total, 0, total / l.shards
  local needs, weights = {}, {}
  for i = 1, l.shards do
    local r = reports[i]
    if r then
      count, needs[i] = count + 1, need(l.of[i], r, even)
      weights[i] = r.groups and math.max(1, r.groups) or needs[i]
    else
      pool = pool - held[i]
    end
  end
  local own = math.max(0, math.min(even * demand.LEAST, pool / math.max(1, count)))
  local parts = shared(needs, weights, math.max(0, pool - count * own), count)
  local wants = {}
  for i, part in pairs(parts) do wants[i] = math.floor(own + part) end
  return near(wants, needs, held, pool) and held or wants
end

-- Wanted places or running jobs by shard: what is taken and an even part of the rest, at least 1. used: what is taken,
-- nil for a silent shard
function demand.counts(l, total, used, held)
  local pool, count, sum, most = total, 0, 0, nil
  for i = 1, l.shards do
    if used[i] then
      count, sum = count + 1, sum + math.max(0, used[i] - 1)
      if not most or used[i] > used[most] then most = i end
    else
      pool = pool - held[i]
    end
  end
  local whole = pool
  pool = math.max(0, pool - count)
  local even = math.max(0, math.floor((pool - sum) / math.max(1, count)))
  local wants, given = {}, 0
  for i = 1, l.shards do
    if used[i] then
      local taken = math.max(0, used[i] - 1)
      wants[i] = 1 + (sum <= pool and taken + even or math.floor(pool * taken / sum))
      given = given + wants[i] - 1
    end
  end
  if not most then return wants end
  wants[most] = wants[most] + math.max(0, pool - given)
  local kept, others, least = {}, 0, 0
  for i, want in pairs(wants) do
    if i ~= most then
      local is_near = math.abs(held[i] - used[i] - even) <= even * demand.SLACK and want > 1
      kept[i] = is_near and held[i] or want
      others, least = others + kept[i], least + math.max(want, used[i])
    end
  end
  -- The others may be keeping all that is free.
  if even > 0 and whole - others < used[most] + even * (1 - demand.SLACK) then kept, others = wants, least end
  -- Otherwise this shard would wait forever for what the others keep.
  kept[most] = math.max(1, math.min(wants[most], whole - others))
  return kept
end

return demand
