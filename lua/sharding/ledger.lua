local as_text = use 'redis/as-text'
local run_id = use 'redis/run-id'
local demand = use 'sharding/demand'

-- The ledger of a sharded queue: how much of the total each shard may hold. docs/algorithm.md has the reasons.
--   l.epoch    number of a history without loss; a shard accepts no earlier one. A new one begins when the ledger was
--              lost or clocks cannot be right. It assumes the worst of each shard until that confirms a lease of it
--   l.run      the run of Redis that wrote it
--   l.number   of the last lease
--   l.divided  when shares were last divided (µs)
--   l.shards   number of shards
--   l.of[i]    per shard:
--     confirmed    the highest lease number that it has reported
--     at, offset   its clock at the last report (µs), and its lead over this Redis's clock at the epoch's first report
--     used, arrivals   recent units per second that departed and arrived
--     departed, waiting   jobs departed by the last report, and jobs waiting then
--     came         its clock at the last report that showed arrivals (µs)
--     rates        {number, rate, ends, last} each: a lease's rate (nano-units per second), possible until this Redis's
--                  time `ends`. `last` is set once a later lease is confirmed: the last slot, by the shard's clock,
--                  that may have been granted before that
--     capacity, concurrency   {number, n} each
local ledger = {
  PERIOD_MS = 250, OVERDUE_US = 500000,
  -- Duration of a lease, from the moment when the shard's clock was read.
  LEASE_MS = 2000,
  -- Reports older than this are not used, and an offset that changes by more than CLOCK_US means that a clock was set.
  STALE_US = 500000, CLOCK_US = 600000,
  -- Slots are granted at most this far ahead. Same as in src/sharding/worker.ts.
  HORIZON_US = 500000,
  -- Stands for an unknown rate or number, and for no limit. No shape has a rate of 1e291 units per second.
  ALL = 1e300,
  -- The rate of a shard without a lease, in nano-units per second, and some slack. Same as in src/sharding/shapes.ts.
  IDLE = 400,
}
-- An unconfirmed lease counts until this long after its grant.
ledger.GONE_US = ledger.LEASE_MS * 1000 + ledger.CLOCK_US + 2000

function ledger.key(base) return base .. 'meta:ledger' end

-- Nothing is known about the shard, except the longest possible lease.
local function unknown(now, horizon)
  return {
    confirmed = 0, at = 0, used = 0, departed = 0,
    rates = { { number = 0, rate = ledger.ALL, ends = now + ledger.GONE_US + horizon } },
    capacity = { { number = 0, n = ledger.ALL } }, concurrency = { { number = 0, n = ledger.ALL } },
  }
end

function ledger.begin_epoch(l, now, after)
  l.epoch = math.max(now, after + 1)
  for i = 1, l.shards do
    local horizon = l.of[i] and l.of[i].horizon or ledger.HORIZON_US
    l.of[i] = unknown(now, math.max(horizon, ledger.HORIZON_US))
  end
end

function ledger.open(base, now, shards)
  local text, run = redis.call('GET', ledger.key(base)), run_id()
  local l = text and cmsgpack.unpack(text) or { epoch = 0, number = 0, divided = 0, shards = shards, of = {} }
  -- Another run may have an older copy.
  if l.run ~= run then
    ledger.begin_epoch(l, now, l.epoch)
    l.run, l.fresh = run, true
  end
  l.stored = text and true
  return l
end

function ledger.save(base, l)
  l.fresh, l.stored = nil, nil
  redis.call('SET', ledger.key(base), cmsgpack.pack(l))
end

function ledger.report(text)
  local r = cjson.decode(text)
  r.at, r.last, r.until_ms, r.epoch = tonumber(r.at), tonumber(r.last), tonumber(r.until_ms), tonumber(r.epoch) or 0
  return r
end

local function those(entries, which)
  local found = {}
  for _, entry in ipairs(entries) do if which(entry) then found[#found + 1] = entry end end
  return found
end

-- A confirmed lease replaces earlier ones once their last slot has passed.
local function supersede(s, r)
  s.rates = those(s.rates, function(entry)
    if entry.number < r.number and not entry.last then entry.last = r.last end
    return not (entry.last and r.at >= entry.last)
  end)
  for _, name in ipairs({ 'capacity', 'concurrency' }) do
    s[name] = those(s[name], function(entry) return entry.number > r.number end)
    table.insert(s[name], 1, { number = r.number, n = r[name] or ledger.ALL })
  end
  s.confirmed = r.number
end

-- The latest epoch known to any shard or to this ledger, if a new one has to begin: a shard knows a later epoch, a
-- clock was set, or a shard has forgotten a lease.
local function broken(l, now, reports)
  local after
  for i = 1, l.shards do
    local s, r = l.of[i], reports[i]
    if r then
      local was_set = s.offset and math.abs(r.at - now - s.offset) > ledger.CLOCK_US
      local forgot = s.confirmed > 0 and (r.epoch ~= l.epoch or r.number < s.confirmed)
      -- A later report has overtaken this one.
      if r.at < s.at and s.at - r.at <= ledger.CLOCK_US then reports[i] = nil
      elseif r.epoch > l.epoch or was_set or forgot then after = math.max(after or l.epoch, r.epoch) end
    end
  end
  return after
end

-- Learns from the reports, and drops those that a later one has overtaken.
function ledger.learn(l, now, reports)
  local after = broken(l, now, reports)
  if after then ledger.begin_epoch(l, now, after) end
  for i = 1, l.shards do
    local s, r = l.of[i], reports[i]
    if r then
      demand.note(s, r)
      if r.epoch == l.epoch then supersede(s, r) end
      s.at, s.horizon, s.offset = r.at, r.horizon, s.offset or r.at - now
    end
    s.rates = those(s.rates, function(entry) return entry.ends > now end)
  end
end

-- The largest amount that may be held.
local function most(entries, field)
  local found = 0
  for _, entry in ipairs(entries) do found = math.max(found, entry[field]) end
  return found
end

-- Amounts are integers. wants: by shard, nil for a silent one; capped: what a shard may hold if nothing more precise is
-- known. Returns what each gets, and whether one has to wait for what another still holds.
local function allot(l, total, wants, held, capped)
  local free, lacking = total, 0
  for i = 1, l.shards do
    free = free - held[i]
    if wants[i] then lacking = lacking + math.max(0, wants[i] - held[i]) end
  end
  local given, short = {}, lacking > math.max(0, free)
  for i = 1, l.shards do
    local more = wants[i] and wants[i] - held[i]
    -- Caps a share at what it wants. A share grows only as far as units are free.
    if more and more > 0 then given[i] = held[i] + math.floor(more * math.min(1, math.max(0, free) / lacking))
    elseif more then given[i] = wants[i] end
    if given[i] and capped[i] then given[i], short = math.min(given[i], capped[i]), true end
  end
  return given, short
end

-- JSON keeps 12 digits unchanged.
local function rounded(nanos)
  if nanos < 1e12 then return nanos end
  local grid = 10 ^ (math.floor(math.log10(nanos)) - 11)
  return math.floor(nanos / grid) * grid
end

local function is_unknown(entries)
  return #entries > 0 and entries[1].number == 0
end

-- An unknown amount takes nothing from the other shards: it only keeps them from growing.
local function known(l, held, entries_of)
  local found = {}
  for i = 1, l.shards do found[i] = is_unknown(entries_of(l.of[i])) and 0 or held[i] end
  return found
end

local function all_have(l, reports, n)
  local given = {}
  for i = 1, l.shards do given[i] = reports[i] and n end
  return given, false
end

local function divide_rate(l, total, reports)
  if not total then return all_have(l, reports, ledger.ALL) end
  local held, capped = {}, {}
  for i = 1, l.shards do
    held[i] = most(l.of[i].rates, 'rate')
    capped[i] = is_unknown(l.of[i].rates) and 0 or nil
  end
  local left = math.max(0, total - l.shards * ledger.IDLE)
  local wants = demand.rates(l, left, reports, known(l, held, function(s) return s.rates end))
  return allot(l, left, wants, held, capped)
end

local function divide_counted(l, total, reports, name, taken)
  if not total then return all_have(l, reports, ledger.ALL) end
  local held, used, capped = {}, {}, {}
  for i = 1, l.shards do
    local r = reports[i]
    used[i] = r and r[taken]
    held[i] = math.max(most(l.of[i][name], 'n'), used[i] or 0)
    capped[i] = r and is_unknown(l.of[i][name]) and (r[name] or ledger.ALL) or nil
  end
  local wants = demand.counts(l, total, used, known(l, held, function(s) return s[name] end))
  return allot(l, total, wants, held, capped)
end

-- An unchanged lease is renewed after half its time.
local function grant(l, now, i, r, values)
  local s = l.of[i]
  local held = s.rates[1]
  local unchanged = r.epoch == l.epoch and #s.rates <= 1
  for _, name in ipairs({ 'capacity', 'concurrency' }) do
    unchanged = unchanged and values[name] == (r[name] or ledger.ALL)
  end
  unchanged = unchanged and (values.rate == nil or (held and held.number == r.number and held.rate == values.rate))
  if unchanged and (values.rate == nil or r.until_ms * 1000 - r.at > ledger.LEASE_MS * 500) then return '' end
  l.number = l.number + 1
  if values.rate then
    local ends = now + ledger.GONE_US + math.max(ledger.HORIZON_US, r.horizon)
    s.rates[#s.rates + 1] = { number = l.number, rate = values.rate, ends = ends }
  end
  local texts = {}
  for _, name in ipairs({ 'capacity', 'concurrency' }) do
    local n = values[name]
    s[name][#s[name] + 1] = { number = l.number, n = n }
    texts[name] = n >= ledger.ALL and 'none' or as_text.us(n)
  end
  local rate = ''
  if values.rate then rate = values.rate <= 0 and '0' or string.format('%.12g', values.rate / 1e9) end
  if values.rate and values.rate >= ledger.ALL then rate = 'none' end
  local until_ms = as_text.us(math.floor(r.at / 1000) + ledger.LEASE_MS)
  return { as_text.us(l.epoch), as_text.us(l.number), rate, until_ms, texts.capacity, texts.concurrency }
end

-- whole: {rate (JSON or nil), whether the shards are paced, capacity, concurrency}. Returns the grants, and whether a
-- share waits for another shard's confirmation.
function ledger.divide(l, now, whole, reports)
  local rates, short = {}, false
  -- Nano-units per second.
  local rate = whole.rate and cjson.decode(whole.rate)
  if whole.paced then rates, short = divide_rate(l, rate and math.floor(rate[1] * 1e12 / rate[2]), reports) end
  local places, no_place = divide_counted(l, whole.capacity, reports, 'capacity', 'places')
  local runs, no_run = divide_counted(l, whole.concurrency, reports, 'concurrency', 'running')
  local grants = {}
  for i = 1, l.shards do
    local r = reports[i]
    local values = { rate = rates[i] and rounded(rates[i]), capacity = places[i], concurrency = runs[i] }
    grants[i] = r and grant(l, now, i, r, values) or ''
  end
  return grants, short or no_place or no_run
end

-- How long until the last slots of superseded leases have passed. A silent shard's share is free only when its lease
-- ends.
function ledger.wait_ms(l, reports)
  local wait = 20
  for i = 1, l.shards do
    if not reports[i] then return ledger.PERIOD_MS end
    for _, entry in ipairs(l.of[i].rates) do
      if entry.last and reports[i] then wait = math.max(wait, math.ceil((entry.last - reports[i].at) / 1000) + 1) end
    end
  end
  return math.min(wait, ledger.PERIOD_MS)
end

return ledger
