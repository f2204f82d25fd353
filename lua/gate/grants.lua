-- Stored data of starting jobs, with or without the gate (ends/ungated).
local grants = {}

-- Extends the handlers (redis/hooked-redis) for BullMQ's scripts to store data with a starting job. start(): when, ms,
-- and its slot, µs, as texts, and its charge (limits/charged), if any. BullMQ resets the counter that keeps equal
-- priorities in order if it finds no job: not if is_held(), since there is one.
function grants.handle(handlers, base, start, is_held)
  local call, pc = redis.call, base .. 'pc'
  function handlers.HMSET(command, key, field, value, ...)
    if field ~= 'processedOn' then return call(command, key, field, value, ...) end
    local started, slot, under = start()
    if not under then return call(command, key, field, started, 'departure', slot, ...) end
    return call(command, key, field, started, 'departure', slot, 'charged', under, ...)
  end
  function handlers.DEL(command, key, ...)
    if key == pc and is_held() then return 0 end
    return call(command, key, ...)
  end
  return handlers
end

-- Grants that a worker may request again because their replies were lost: several at once if the connection broke.
-- grant: the id of a call: the worker's id, the number of the memo that belongs to this call until it is answered, and
-- the call's number, separated by colons
function grants.worker(grant)
  return string.match(grant, '^(.*):%d+:')
end

local function grants_key(base, grant)
  return base .. 'meta:grants:' .. string.match(grant, '^(.*):')
end

-- jobs: {id, slot µs, cost, cost µs, score} each, or {id, score} or only an id if the slot is `at` (µs, text). After
-- memo_ms their locks have expired.
function grants.keep(base, grant, memo_ms, jobs, last_before, seq, at)
  local memo = cmsgpack.pack(grant, jobs, last_before, seq, at)
  redis.call('SET', grants_key(base, grant), memo, 'PX', memo_ms)
end

-- Whether something may be kept for this call. Unlike GET, this is no keyspace miss if nothing is, as in most calls. It
-- changes nothing, but a full Redis refuses it to scripts that have not written yet.
function grants.may_be_kept(base, grant)
  return redis.call('SETRANGE', grants_key(base, grant), 0, '') > 0
end

-- The grants kept for this call, or nil.
function grants.recall(base, grant)
  local memo = redis.call('GET', grants_key(base, grant))
  if not memo then return nil end
  local kept, jobs, last_before, seq, at = cmsgpack.unpack(memo)
  if kept ~= grant then return nil end
  for i, job in ipairs(jobs) do
    if type(job) == 'string' then job = { job, '' } end
    jobs[i] = #job == 2 and { job[1], at, '1', '0', job[2] } or job
  end
  return { jobs = jobs, last_before = last_before, seq = seq }
end

return grants
