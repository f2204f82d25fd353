--[[
  Locates a job; writes nothing, except to end expired overrides.
  ARGV
    [1]  job id
    [2]  how many waiting jobs to search
  Returns {state or '', position or '', start µs or ''}. The state is '' for an unknown job; it is 'waiting' without a
    position for one beyond the searched jobs.
]]
local group_line = use 'groups/line'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local key, base, id = KEYS[1], string.sub(KEYS[1], 1, -11), ARGV[1]
if redis.call('EXISTS', base .. id) == 0 then return { '', '', '' } end
for _, state in ipairs({ 'completed', 'failed', 'delayed', 'waiting-children' }) do
  if redis.call('ZSCORE', base .. state, id) then return { state, '', '' } end
end
if redis.call('LPOS', base .. 'active', id) then return { 'active', '', '' } end
local now = redis_now()
local shape = shapes.load(key, base, now)
local position, start = group_line.estimate(base, shape, now, id, nil, ARGV[2])
return { redis.call('ZSCORE', base .. 'prioritized', id) and 'prioritized' or 'waiting', position, start }
