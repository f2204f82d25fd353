local call_state = use 'redis/call-state'

-- The jobs that BullMQ's scripts fetch. MOST bounds the total size of the jobs that one script starts: Redis copies
-- each into Lua and into the reply, 2.5 ms for 1 MiB.
local fetched = { MOST = 256 * 1024 }

-- Whether this is BullMQ's tuple with a job.
function fetched.is_job(reply)
  return type(reply) == 'table' and type(reply[1]) == 'table'
end

-- fields: the hash of a starting job. Returns whether the script has started enough; the worker asks for the rest.
function fetched.is_enough(fields)
  local bytes = call_state.bytes
  for i = 2, #fields, 2 do bytes = bytes + #fields[i] end
  call_state.bytes = bytes
  return bytes >= fetched.MOST
end

return fetched
