--[[
  Charges limits, or only peeks: any number of decisions, each over one or more limits, all or none of them.
  KEYS
    [1…]  the switch of each limit; then for each part of each decision the state of its key; then the record of the
          charges of this call, which replaces the record of an answered call
  ARGV
    [1]   how many limits
    [2]   the latest time to decide (µs): after it nothing is decided; '' for none
    [3]   number of this call, followed by a space: a resent call charges nothing twice
    [4]   how long the record lasts from its first call on, ms
    [5…]  the definition of each, JSON, or the number of another limit that has the same; then the requests, with spaces
          between: number of equal consecutive decisions; 'take' or 'peek'; and for each part the number of
          its limit, the cost, the lease and a semicolon
  Returns {now (µs), then for each decision: 0 if it is refused, 1 if it is allowed, + 2 if keys share a state, + 4 if a
  limit has a newer definition (then nothing is charged); and for each of its parts what limits/checks reports}; {now} if
  it was too late.
]]
local limit_checks = use 'limits/checks'
local limit_control = use 'limits/control'
local redis_now = use 'redis/redis-now'

local now, count = redis_now(), tonumber(ARGV[1])
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return { now } end
local fetched = redis.call('MGET', unpack(KEYS))

-- The record: a call, and for each of its decisions '1' if it charged.
local record, call, charges = fetched[#KEYS], ARGV[3], {}
local again = record and string.find(record, call, 1, true) == 1
local limits, states, reply, size, saved = {}, {}, { now }, 1, {}
-- For the parts of one decision: their number, the request, its limit, its key, the key's state, its wait, and whether
-- this call has charged it before. The tables are reused, because this runs for each of many decisions.
local parts, asked, of, keys, states_of, waits, others, paid = 0, {}, {}, {}, {}, {}, {}, {}
local shared, outdated = false, false

-- The parts of a spread limit share one definition.
local same = {}
local function definition_of(number)
  local text = ARGV[number + 4]
  local like = tonumber(text)
  if not like then return cjson.decode(text) end
  same[like] = same[like] or cjson.decode(ARGV[like + 4])
  local l = {}
  for field, value in pairs(same[like]) do l[field] = value end
  return l
end

-- Number of decisions, whether they take, and the parts of each.
local function parse(text)
  local times, verb, rest = string.match(text, '^(%d+) (%l+)(.*)$')
  local list = {}
  for number, cost, lease in string.gmatch(rest, ' (%d+) (%S+) (%S*);') do
    list[#list + 1] = { number = tonumber(number), cost = tonumber(cost), lease = lease }
  end
  return tonumber(times), verb == 'take', list
end

local function add_part(part, key, packed)
  local number = part.number
  local l = limits[number]
    or limit_checks.prepare(definition_of(number), string.sub(KEYS[number], 1, -8), now, false, fetched[number])
  limits[number] = l
  local place = key
  if l.maxKeys then
    place, others[parts + 1] = limit_checks.place(l, key, now)
    if others[parts + 1] then packed, shared = nil, true end
  end
  local s = states[place]
  if not s then
    s = l.verbs.open(place, l, now, packed)
    states[place] = s
  end
  parts = parts + 1
  asked[parts], of[parts], keys[parts], states_of[parts] = part, l, place, s
  waits[parts] = limit_checks.wait_of(l, s, key, part.cost, now)
  if l.outdated then outdated = true end
end

-- A charged state is stored once, at the end. A resent call only renews its leases.
local function charge(l, s, part, charged)
  if charged and l.algorithm ~= 'concurrency' then return end
  s.lease = part.lease
  if charged then s.used = s.used - part.cost end
  l.verbs.charge(s, l, part.cost, 0)
  if s.charged then return end
  s.charged = l
  saved[#saved + 1] = s
end

local function decide(takes)
  local passes = true
  takes = takes and not outdated
  local decision = #charges + 1
  local charged = again and string.sub(record, #call + decision, #call + decision) == '1'
  for i = 1, parts do
    -- An expired lease is taken again: another caller may have its place.
    paid[i] = charged and (of[i].algorithm ~= 'concurrency'
      or (tonumber(redis.call('ZSCORE', keys[i], '1 ' .. asked[i].lease) or nil) or 0) > now)
    if paid[i] then waits[i] = math.min(waits[i], 0) end
    if waits[i] > 0 then passes = false end
  end
  charges[decision] = (charged or takes and passes) and '1' or '0'
  reply[size + 1] = (passes and 1 or 0) + (shared and 2 or 0) + (outdated and 4 or 0)
  size = size + 1
  for i = 1, parts do
    local l, s = of[i], states_of[i]
    -- A caller that does not wait: the share reserved for such callers is not lent for a while.
    if takes and l.reserve and l.mode ~= 'off' then limit_control.write(l.control, { taken_at = now, lend = l.lend }) end
    if takes and passes and waits[i] == 0 and l.mode ~= 'off' then charge(l, s, asked[i], paid[i]) end
    size = limit_checks.tell(l, s, waits[i], reply, size)
    if takes and passes and l.maxKeys and not others[i] then limit_checks.keep_place(l, keys[i], now + reply[size]) end
  end
  parts, shared, outdated = 0, false, false
end

local key = count
for i = count + 5, #ARGV do
  local times, takes, list = parse(ARGV[i])
  for _ = 1, times do
    for p = 1, #list do
      key = key + 1
      add_part(list[p], KEYS[key], fetched[key])
    end
    decide(takes)
  end
end
for _, s in ipairs(saved) do s.charged.verbs.save(s, s.charged) end
if saved[1] then
  call = call .. table.concat(charges)
  if record then redis.call('SET', KEYS[#KEYS], call, 'KEEPTTL')
  else redis.call('PSETEX', KEYS[#KEYS], ARGV[4], call) end
end
return reply
