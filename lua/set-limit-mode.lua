--[[
  Sets the mode of a limit for everybody who uses it, at once.
  KEYS
    [1]  the control hash of the limit
  ARGV
    [1]  'enforce', 'shadow', 'off', or '' for what the code says
  Returns 1.
]]
--- @include "lib/limit-switch"
--- @include "lib/limit-place"
limit_switch_write(KEYS[1], { mode = ARGV[1] == '' and '-' or ARGV[1] })
queue_limit_call_others(KEYS[1], '')
return 1
