-- What the shards of a queue would need, from what they report: shares that together are never more than the whole, less
-- what shards that did not report may have. Nothing here keeps the bound: lib/ledger does.
-- One table: a script has no room for more than 200 local names.
local demand = {
  -- What left lately is a mean over about this time.
  MEAN_US = 300000,
  -- Of what left lately, so that a shard may leave faster than it did; of an even share: what each keeps, and what one
  -- keeps whose jobs wait for something else than the rate.
  MORE = 1.25, LEAST = 0.01, HELD = 0.1,
  -- A share that is as near to the wanted one is kept: each change costs calls.
  NEAR = 0.1,
}

-- Units per second that left between two reports.
function demand.note(s, r)
  local span, departed = r.at - s.at, r.departed * r.mean
  if s.at > 0 and span > 0 and departed >= s.departed then
    local now = (departed - s.departed) * 1e6 / span
    s.used = s.used + (now - s.used) * (1 - math.exp(-span / demand.MEAN_US))
  end
  s.departed = departed
end

-- Nano-units per second that a shard needs if it does not wait for the rate; else nil: as many as it can have.
local function need(s, r, even)
  if r.waiting > 0 and r.wants then return nil end
  local used = demand.MORE * s.used * 1e9
  return r.waiting > 0 and used + demand.HELD * even or used
end

-- What is left after those that do not wait goes to those that do, by what waits in them; if none does, evenly.
local function shared(reports, needs, pool, count)
  local sum, weight = 0, 0
  for i, r in pairs(reports) do
    if needs[i] then sum = sum + needs[i] else weight = weight + math.max(1, r.weight) end
  end
  local part = math.min(1, sum > 0 and pool / sum or 1)
  local left, parts = math.max(0, pool - sum), {}
  for i, r in pairs(reports) do
    local more = weight == 0 and left / count or 0
    parts[i] = needs[i] and needs[i] * part + more or left * math.max(1, r.weight) / weight
  end
  return parts, weight > 0
end

-- Whether all may keep what they have.
local function near(wants, held, total, waits)
  local sum = 0
  for i, want in pairs(wants) do
    sum = sum + held[i]
    if want > held[i] * (1 + demand.NEAR) or (waits and want < held[i] * (1 - demand.NEAR)) then return false end
  end
  return sum <= total and sum >= total * (1 - demand.NEAR)
end

-- Wanted rates by shard, in nano-units per second; none for one that did not report.
function demand.rates(l, total, reports, held)
  local pool, count, even = total, 0, total / l.shards
  local needs = {}
  for i = 1, l.shards do
    if reports[i] then
      count, needs[i] = count + 1, need(l.of[i], reports[i], even)
    else
      pool = pool - held[i]
    end
  end
  local own = math.max(0, math.min(even * demand.LEAST, pool / math.max(1, count)))
  local parts, waits = shared(reports, needs, math.max(0, pool - count * own), count)
  local wants = {}
  for i, part in pairs(parts) do wants[i] = math.floor(own + part) end
  return near(wants, held, pool, waits) and held or wants
end

-- Wanted places or running jobs by shard: what is taken and an even part of the rest, at least 1. used: what is taken,
-- nil for one that did not report
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
  if most then wants[most] = wants[most] + math.max(0, pool - given) end
  for i, want in pairs(wants) do
    local free = held[i] - (used[i] or 0)
    if i ~= most and math.abs(free - even) <= even / 4 and want > 1 then wants[i] = held[i] end
  end
  return wants
end
