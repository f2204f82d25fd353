--[[
  Sets what a limit with `by` allows for one value of its keys, or a pool for one of its members, at run time, or lifts
  it: then the shape applies again.
  ARGV
    [1]  the name of the limit
    [2]  JSON: name -> value of each key, with `group` if the limit counts by group; `member` of a pool
    [3]  JSON: field -> value, null for "no limit", {"clear": true} to lift the field
    [4]  who
    [5]  why
    [6]  how long, ms, or '' until it is lifted
    [7]  '1' to lift all other fields first
    [8]  'id:revision' of the shape that the caller knows, '' if none
    [9]  when the call was first sent, µs, if it may have run already
  Returns {1, JSON of the value's own fields now, the shape unless the call was made before}; {-1} if Redis has lost what
  the caller knows; {-12} if the queue has no such limit, or shares it.
]]
local wake = use 'gate/wake'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local own_values = use 'limits/own-values'
local queue_limits = use 'limits/queue-limits'
local history = use 'reports/history'
local shapes = use 'shape/shapes'

local base, now, shape = shapes.here(KEYS[1])
if shapes.is_lost(shape, ARGV[8]) then return { -1 } end
local limits, keys = shape and group_limits_of(base, shape, now), cjson.decode(ARGV[2])
local l, value
if limits then l, value = limits.named(ARGV[1], keys) end
local member = shape and not l and queue_limits.member(shape, base, now, ARGV[1], keys)
if member then l, value = member.l.of_pool.member, member.member end
if not l or l.shared then return { -12 } end
local until_ms = ARGV[6] ~= '' and math.floor(now / 1000) + math.ceil(tonumber(ARGV[6])) or nil
local change = cjson.decode(ARGV[3])
change.limit, change.keys = ARGV[1], keys
local noted = cjson.encode(change)
if history.made(base, ARGV[9], 'limit', ARGV[4], ARGV[5], noted, ARGV[6]) then
  return { 1, shapes.encode((own_values.stored(base, l.name, value) or { fields = {} }).fields) }
end
change.limit, change.keys = nil, nil
local g, fields = not member and queue_groups.open(base, shape, now), nil
if member then
  fields = own_values.set(base, l, value, keys, now, change, ARGV[4], ARGV[5], until_ms, ARGV[7] == '1')
  shapes.note_own_values(KEYS[1], base, l.name, now)
else
  fields = limits.set_value(g, l, value, keys, change, ARGV[4], ARGV[5], until_ms, ARGV[7] == '1')
end
-- Processes that know the shape learn of the value, to restore it after a loss.
local revision = shapes.revise(KEYS[1])
if not member then
  g:cell_freed(l.name .. ':' .. value, keys.group or '')
  g:save()
  wake.head_changed(base, g)
end
history.note(base, now, 'limit', ARGV[4], ARGV[5], noted, until_ms or '')
redis.call('PUBLISH', base .. 'meta:wake', revision)
return { 1, shapes.encode(fields), redis.call('HGETALL', KEYS[1]) }
