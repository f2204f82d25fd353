--[[
  The state of the meter, for people and dashboards; writes nothing, except to end expired overrides.
  ARGV
    [1]  '1' to bring the bucket up to now, '0' for the stored shape alone
  Returns {now µs, the shape or false, depth, wait + prioritized, delayed, waiting-children, active,
    '1' if BullMQ's pause is on, level (cost units owed), when the head could leave by the rate, the limits and
    its group (µs) or '' if unknown, the meter hash and its mean cost, {timestamp, opts, processedOn} of the job whose age is that of the head, empty if none waits,
    BullMQ's global concurrency or false, with groups how many are ready, limited, full and paused, else nil}.
]]
local next_departure = use 'admission/next-departure'
local occupancy = use 'admission/occupancy'
local schedule = use 'admission/schedule'
local queue_groups = use 'groups/queue-groups'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local queue_head = use 'reports/queue-head'
local shapes = use 'shape/shapes'

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now = redis_now()
local shape = shapes.load(key, base, now)
local level, next_slot = '0', ''
if ARGV[1] == '1' and shape then
  local m = next_departure.meter(base, shape, now)
  if m then
    level = as_text.exact(math.max(0, m.tat - m.now) / m.interval)
    local slot = math.max(m.now, shape.paused_until - m.origin)
    if shape.mode == 'enforce' then slot = meter.slot(m, next_departure.head_cost(base, shape, now) or 1, shape.paused_until) end
    next_slot = as_text.us(m.origin + math.ceil(slot))
  end
  if shape.limits and shape.mode == 'enforce' then
    local p = schedule.open(base, shape, now)
    next_slot = p.left == 0 and '' or as_text.us((schedule.nth(p, 1)))
  end
end
local listed = redis.call('LLEN', base .. 'wait')
local ready = listed + redis.call('ZCARD', base .. 'prioritized')
local groups, plain_goes
if shape and shape.groups then
  local plain = listed + redis.call('ZCOUNT', base .. 'prioritized', queue_groups.BAND, '+inf')
  plain_goes = plain > 0 and not redis.call('ZSCORE', base .. 'meta:groups:limited', '')
  local function size(name) return redis.call('ZCARD', base .. 'meta:groups:' .. name) end
  -- Jobs without a group are one group without a name.
  local unnamed = redis.call('ZSCORE', base .. 'meta:groups:ready', '') and 1 or 0
  groups = { size('ready') - unnamed, size('limited') + size('stale'), size('full'), size('paused') }
end
-- Where all groups are held, and jobs without a group too, the first slot of one.
local open = next_slot ~= '' or (shape and not shape.interval and not shape.limits)
if ARGV[1] == '1' and open and shape and shape.groups and shape.mode == 'enforce' and ready > 0 and not plain_goes then
  local slots = queue_groups.open(base, shape, now):slots(1)
  if slots then next_slot = slots[1] and as_text.us(math.max(now, tonumber(next_slot) or 0, slots[1])) or '' end
end
local counters, stored = redis.call('HGETALL', base .. 'meta:meter'), meter.stored(base)
if stored then counters[#counters + 1], counters[#counters + 2] = 'meanCost', as_text.exact(stored.mean_cost) end
return {
  as_text.us(now), shape and redis.call('HGETALL', key) or false,
  shape and occupancy.taken(base, shape, now) or ready, ready,
  redis.call('ZCARD', base .. 'delayed'), redis.call('ZCARD', base .. 'waiting-children'),
  redis.call('LLEN', base .. 'active'), redis.call('HEXISTS', base .. 'meta', 'paused') == 1 and '1' or '0',
  level, next_slot, counters,
  queue_head.fields(base, shape, now) or {},
  redis.call('HGET', base .. 'meta', 'concurrency'), groups,
}
