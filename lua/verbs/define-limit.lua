--[[
  Stores the definition of a limit's name, unless the name has another one already. A higher version replaces it.
  KEYS
    [1]  the control hash of the limit
  ARGV
    [1]  the definition, JSON
    [2]  its version, an integer, or '' for none
    [3]  the declarer: host and process id
  Returns {1 if it applies, 0 if another one does, the stored definition, its version or ''}.
]]
local limit_control = use 'limits/control'

local in_force, definition, version = limit_control.define(KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3])
return { in_force and 1 or 0, definition, tostring(version) }
