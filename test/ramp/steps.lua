--[[
  One step of a queue whose pauses end, by the scripts of lua/, at a time that the step brings along.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  µs
    [2]  'declare', then JSON of the fields
         'pause', then what lua/verbs/pause-meter takes
         'apply', then a request of lua/verbs/apply-feedback
         'setGroup', then what lua/verbs/set-group takes
         'interval', then a group, or '' for that of the queue
  Returns what the script does; of 'interval' µs as text.
]]
local faked = use 'faked'
local queue_groups = use 'groups/queue-groups'
local shapes = use 'shape/shapes'
local apply_feedback = use 'verbs/apply-feedback'
local declare_shape = use 'verbs/declare-shape'
local pause_meter = use 'verbs/pause-meter'
local set_group = use 'verbs/set-group'

faked.now, faked.run = tonumber(ARGV[1]), '1'

local keys, steps = { KEYS[1] }, {}
function steps.declare(fields) return declare_shape(keys, { fields, '', 'test' }) end
function steps.pause(...) return pause_meter(keys, { ... }) end
function steps.apply(request) return apply_feedback(keys, { request, '' }) end
function steps.setGroup(...) return set_group(keys, { ... }) end
function steps.interval(group)
  local base = string.sub(KEYS[1], 1, -11)
  local shape = shapes.load(KEYS[1], base, faked.now)
  if group == '' then return tostring(shape.interval) end
  local g = queue_groups.open(base, shape, faked.now)
  g:begin()
  local interval = g:settings(group).interval
  g:save()
  return tostring(interval)
end

return steps[ARGV[2]](unpack(ARGV, 3))
