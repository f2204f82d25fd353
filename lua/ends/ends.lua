local move_to_delayed = use 'bullmq/moveToDelayed'
local move_to_finished = use 'bullmq/moveToFinished'
local exchanged = use 'ends/exchanged'
local fetched = use 'ends/fetched'
local finished = use 'ends/finished'
local end_kind = use 'ends/kind'
local without_fetch = use 'ends/without-fetch'
local grants = use 'gate/grants'
local wake = use 'gate/wake'
local call_state = use 'redis/call-state'

-- Ends the jobs that a worker exchanges (lua/verbs/exchange.lua): BullMQ's moveToFinished for each, or moveToDelayed.
local ends = { FIRST = 7, FIELDS = 6 }

-- Returns whether a delayed job looks for another.
function ends.begin(base, argv)
  local postpones = false
  exchanged.base, exchanged.argv = base, argv
  exchanged.keys, exchanged.args[7] = move_to_finished.keys(base, '', ''), base
  exchanged.count, exchanged.wanted = (#argv - ends.FIRST + 1) / ends.FIELDS, 0
  for at = ends.FIRST, #argv, ends.FIELDS do
    local kind = end_kind(argv[at + 5])
    if kind.wants then exchanged.wanted = exchanged.wanted + 1 end
    postpones = postpones or kind.delayed and kind.wants
  end
  return postpones
end

-- Whether ends are exactly BullMQ's, because there is no shape.
function ends.are_plain() return exchanged.argv[5] == 'plain' end

-- The lock token of the ending job.
function ends.token(at)
  local options, kind = exchanged.argv[at + 3], end_kind(exchanged.argv[at + 5])
  return kind.delayed and not kind.wants and options or cmsgpack.unpack(options).token
end

-- BullMQ's reply to the end of a job that runs again later.
function ends.postpone(at, fetch, redis)
  local argv, base = exchanged.argv, exchanged.base
  local id, options, skips = argv[at], argv[at + 3], end_kind(argv[at + 5]).field
  local args = { base, argv[at + 1], id, ends.token(at), argv[at + 2], skips, argv[at + 4], fetch and '1' or '0', options }
  local reply = move_to_delayed.run(redis, move_to_delayed.keys(base, id, ''), args)
  if not fetch or reply ~= 0 then return reply end
  -- Unlike BullMQ's other scripts, it does not report when the next delayed job is due, which may be this one.
  return { 0, 0, 0, wake.first_due(base) }
end

-- BullMQ's reply to the end of the job whose arguments begin at `at`.
function ends.run(at, fetch, redis)
  local argv, keys, args = exchanged.argv, exchanged.keys, exchanged.args
  local kind = end_kind(argv[at + 5])
  if kind.delayed then return ends.postpone(at, fetch, redis) end
  call_state.ended[argv[at]] = kind.target ~= 'failed' or argv[at + 2]
  keys[11], keys[12] = exchanged.base .. kind.target, exchanged.base .. argv[at]
  keys[13] = exchanged.base .. 'metrics:' .. kind.target
  args[1], args[2], args[3], args[4], args[5] = argv[at], argv[at + 1], kind.field, argv[at + 2], kind.target
  args[6], args[8], args[9] = fetch and '1' or '0', argv[at + 3], argv[at + 4]
  return move_to_finished.run(redis, keys, args)
end

-- The `redis` for BullMQ's script where it fetches nothing.
function ends.quiet()
  exchanged.quiet = exchanged.quiet or (ends.are_plain() and redis or without_fetch.quiet(exchanged.base))
  return exchanged.quiet
end

-- The lock of a finished job may have expired because Redis was away for too long, or did not renew it. If the job is
-- still active and not locked by another worker, its worker has not lost it, and its end counts. Returns whether it is
-- locked again. BullMQ's own worker on a queue without a shape gets BullMQ's reply instead.
local function relock(base, id, token)
  if redis.call('EXISTS', base .. id .. ':lock') == 1 or not redis.call('LPOS', base .. 'active', id) then return false end
  redis.call('SET', base .. id .. ':lock', token, 'PX', 1000)
  return true
end

function ends.run_locked(at, fetch, gated)
  local argv = exchanged.argv
  -- A job that runs again may do so, even with the same token, before its end is resent.
  if end_kind(argv[at + 5]).delayed and finished.is_remembered(exchanged.base, argv[at], argv[at + 1]) then return -2 end
  if not fetch then gated = ends.quiet() end
  local reply = ends.run(at, fetch, gated)
  if reply ~= -2 or ends.are_plain() then return reply end
  local locked = relock(exchanged.base, argv[at], ends.token(at))
  return locked and ends.run(at, fetch, gated) or reply
end

-- The running jobs by lock token, and those granted to the call behind a gate. Read once, for all ends of a resent
-- batch.
local function read_running(base, call)
  local by_token, granted = {}, {}
  local memo = grants.recall(base, call)
  for _, job in ipairs(memo and memo.jobs or {}) do granted[job[1]] = true end
  for _, id in ipairs(redis.call('LRANGE', base .. 'active', 0, -1)) do
    local token = redis.call('GET', base .. id .. ':lock')
    if token then
      by_token[token] = by_token[token] or {}
      table.insert(by_token[token], id)
    end
  end
  return { by_token = by_token, granted = granted }
end

-- The job that a resent end fetched at its first run, whose reply was lost: the running job with the lock token of the
-- ended one that started at its end, or was granted by this call (its id). Returned as BullMQ's reply; nil if none or
-- several match.
local function fetched_before(base, options, timestamp, call)
  local running = call_state.running or read_running(base, call)
  call_state.running = running
  local found
  for _, id in ipairs(running.by_token[cmsgpack.unpack(options).token] or {}) do
    if running.granted[id] or redis.call('HGET', base .. id, 'processedOn') == timestamp then
      if found then return nil end
      found = id
    end
  end
  return found and { redis.call('HGETALL', base .. found), found, 0, 0 }
end

-- The result of an end that BullMQ's script refused, as it also does for a resent end.
function ends.refused(at, kind, reply)
  local argv = exchanged.argv
  local id, ended = argv[at], argv[at + 1]
  local target = not kind.delayed and exchanged.base .. kind.target
  local code, again = finished.code(reply, exchanged.base, target, id, ended)
  if not again then return code end
  exchanged.repeated = true
  local looks = kind.wants and not exchanged.remembered
  local before = looks and fetched_before(exchanged.base, argv[at + 3], ended, argv[3])
  if before then exchanged.found = exchanged.found + 1 end
  return before or code
end

-- Ends the job whose arguments begin at `at`. Returns its result and, if it looked for another, BullMQ's reply.
function ends.finish(at, fetches, gated)
  local argv, base = exchanged.argv, exchanged.base
  local id, ended, kind = argv[at], argv[at + 1], end_kind(argv[at + 5])
  local fetch = fetches and kind.wants and not exchanged.dry
  local done, reply = pcall(ends.run_locked, at, fetch, gated)
  if not done then return type(reply) == 'table' and reply.err or tostring(reply) end
  if type(reply) == 'number' and reply < 0 then return ends.refused(at, kind, reply) end
  if kind.discarded or kind.delayed then finished.remember(base, id, ended, argv[4]) end
  if kind.delayed then wake.delayed(base) end
  if not fetch then exchanged.unseen[#exchanged.unseen + 1] = id end
  return 0, fetch and reply
end

-- The same where the end fetches the next job without the gate. Returns BullMQ's tuple with that job; nil if there is
-- none.
function ends.exchange(at, gated)
  local wants = end_kind(exchanged.argv[at + 5]).wants and not exchanged.dry
  local result, reply = ends.finish(at, true, gated)
  local came = reply and fetched.is_job(reply)
  if reply then
    exchanged.last = reply
    -- A single end looks for no more.
    exchanged.dry = not came or (exchanged.count > 1 and fetched.is_enough(reply[1]))
    if came then result = reply end
  elseif wants and type(result) ~= 'table' then
    exchanged.unasked = exchanged.unasked + 1
  end
  exchanged.results[#exchanged.results + 1] = result
  return came and reply or nil
end

return ends
