-- lib/wake, made when it is first used: to make it takes as long as several commands, and few calls need it.
local wake = {}

local function wake_library()
  --- @include "wake" here
  return wake
end

setmetatable(wake, { __index = function(lazy, name)
  local library = wake_library()
  setmetatable(lazy, { __index = library })
  return library[name]
end })
