-- Runs a script that makes much garbage. Lua frees garbage while scripts allocate, and all scripts of a Redis share one
-- heap. Its default speed weighs an object to be freed like ten bytes to be marked, so a single large call frees what ten
-- or fifteen have left and takes two to three times as long as these. At a tenth of that speed seven calls share the same
-- work. The heap grows by a few MiB until then. A large one (a Redis with very many scripts) is collected as fast as by
-- default; the scripts of a queue alone take 8 MiB, and collection begins at twice what is in use.
--   steady_begin()    before the script
--   steady_end(...)   after it; returns what it returned. A script that fails leaves this to the next call
local STEADY_KIB, STEADY_SPEED, DEFAULT_SPEED = 64 * 1024, 20, 200

local function steady_begin()
  if collectgarbage('count') < STEADY_KIB then collectgarbage('setstepmul', STEADY_SPEED) end
end

local function steady_end(...)
  collectgarbage('setstepmul', DEFAULT_SPEED)
  return ...
end
