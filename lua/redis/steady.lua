-- Runs a script that makes much garbage. Lua frees garbage while scripts allocate, and all scripts of a Redis share one
-- heap. Its default speed weighs an object to be freed like ten bytes to be marked, so a single large call frees what ten
-- or fifteen have left and takes two to three times as long as these. At a tenth of that speed seven calls share the same
-- work. The heap grows by a few MiB until then. A large one (a Redis with very many scripts) is collected as fast as by
-- default; the scripts of a queue alone take 8 MiB, and collection begins at twice what is in use.
local STEADY_KIB, STEADY_SPEED, DEFAULT_SPEED = 32 * 1024, 20, 200

-- Redis says where a command failed only if nothing catches the error. Level 4 is what called redis.call.
local function steady_error(reply)
  local line = string.match(select(2, pcall(error, '', 4)), ':(%d+): $')
  if line and type(reply) == 'table' and reply.err then reply.err = reply.err .. ' script: line ' .. line end
  return reply
end

-- Returns what the script returns. All scripts of this Redis, not only ours, would run at the speed that one leaves: so
-- slow, the collector does not keep up with many short strings, and the heap would grow for as long.
local function steady(script)
  -- Some services for Redis may lack it.
  local collect = rawget(_G, 'collectgarbage')
  if not collect or collect('count') >= STEADY_KIB then return script() end
  collect('setstepmul', STEADY_SPEED)
  -- In one line: Redis ends a script that is killed at the next one.
  local done, reply = xpcall(script, steady_error) collect('setstepmul', DEFAULT_SPEED)
  if done then return reply end
  return type(reply) == 'table' and reply or error(reply, 0)
end

return steady
