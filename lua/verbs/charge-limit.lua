--[[
  Charges a limit with `by` for one value of its keys, or a pool for one of its members, even beyond its remaining units.
  ARGV
    [1]  the name of the limit
    [2]  JSON: name -> value of each key, with `group` if the limit counts by group; `member` of a pool
    [3]  the cost
    [4]  id of the call, which charges once even if it is resent
    [5]  'id:revision' of the shape that the caller knows, '' if none
  Returns {1}; {-1} if Redis has lost what the caller knows; {-12} if the queue has no such limit.
]]
local group_limits_of = use 'groups/limits-of'
local queue_limits = use 'limits/queue-limits'
local limit_state = use 'limits/state'
local shapes = use 'shape/shapes'

local AGAIN_MS = 60000

local base, now, shape = shapes.here(KEYS[1])
if shapes.is_lost(shape, ARGV[5]) then return { -1 } end
local limits = shape and group_limits_of(base, shape, now)
local keys = cjson.decode(ARGV[2])
local part = limits and limits.part_of(ARGV[1], keys) or shape and queue_limits.member(shape, base, now, ARGV[1], keys)
if not part then return { -12 } end
if not redis.call('SET', base .. 'meta:answered:' .. ARGV[4], '', 'NX', 'PX', AGAIN_MS) then return { 1 } end
if part.l.mode ~= 'off' then limit_state.settle(part.l, part.s, tonumber(ARGV[3])) end
return { 1 }
