--[[
  Reads one group; nothing is changed.
  ARGV
    [1]  the group
  Returns {now µs, state (ready, limited, full, paused, or idle without waiting jobs), waiting jobs, running jobs ('' if
  they are not recorded), its next slot or the end of its pause (µs, '' if there is none), JSON of what is set for it, JSON
  of the defaults, the limit that holds it or '', jobs that are delayed or wait for their children, how many jobs it may
  hold now ('' if nothing bounds it), what says so: capacity or share}; {} if the queue has no groups.
]]
local group_later = use 'groups/later'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local group_share = use 'groups/share'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local base, group, now = string.sub(KEYS[1], 1, -11), ARGV[1], redis_now()
local shape = shapes.load(KEYS[1], base, now)
if not shape or not shape.groups then return {} end
local g = queue_groups.open(base, shape, now)
local state, score = 'idle', ''
for _, name in ipairs({ 'ready', 'limited', 'full', 'paused' }) do
  local found = redis.call('ZSCORE', g:key(name), group)
  if found then state, score = name, found end
end
if redis.call('ZSCORE', g:key('stale'), group) then state = 'limited' end
local s = g:settings(group)
if s.limited then state, score = 'limited', as_text.us(s.limited) end
if s.paused then state, score = 'paused', s.paused == math.huge and '' or as_text.us(s.paused) end
local limits = state == 'limited' and not s.limited and group_limits_of(base, shape, now)
local own = redis.call('HGET', g:key('settings'), group)
local line, later = redis.call('ZCARD', base .. 'meta:group:jobs:' .. group), group_later.count(base, group)
local bound = group_share.bound(g, group_share.call(g, shape, 0), group, 0)
local most = shape.mode == 'off' and math.huge or bound.most(line + later)
return {
  as_text.us(now), state, line,
  g.tracked and redis.call('SCARD', base .. 'meta:group:held:' .. group) or '',
  (state == 'limited' or state == 'paused') and score or '', own and cjson.encode(cjson.decode(own).fields) or '{}',
  shape.groups, limits and limits.cause(g, group) or '', later,
  most < math.huge and most or '', most == bound.own and 'capacity' or 'share',
}
