local ends = use 'ends/ends'
local fetched_size = use 'ends/fetched-size'
local finished = use 'ends/finished'
local quick_path = use 'ends/quick-path'
local without_fetch = use 'ends/without-fetch'

--- @call
-- The ends of the jobs of a batch, each of which fetches the next job by itself. An end that BullMQ's script refuses
-- because the lock is missing, or because this call was sent before, is left to lua/verbs/finish-batch.lua.
--   results   for each job BullMQ's code, the text of an error, BullMQ's tuple with the next job, or false if it is left
--   ended     how many have ended; fetched: how many were fetched; last: the last reply of a fetch; dry: once no job was
--             found, or enough were (ends/fetched-size), none is looked for
--   repeated  whether this call was sent before: then its departures are counted already
local batch_open = { results = {}, ended = 0, fetched = 0, dry = false, repeated = false }

-- Returns the result of the job whose arguments begin at argv[at]. each(id, fetch, next): called for each end; next:
-- BullMQ's tuple with the next job, nil if it has fetched none
function batch_open.finish(argv, at, memo_ms, redis, quiet, each)
  local b, id, ended, kind = batch_open, argv[at], argv[at + 1], ends.kind(argv[at + 5])
  local fetch = kind.wants and not b.dry
  local done, reply = pcall(ends.finish, argv, at, fetch, fetch and redis or quiet)
  if not done then return type(reply) == 'table' and reply.err or tostring(reply) end
  if type(reply) == 'number' and reply < 0 then
    local code, again = finished.code(reply, ends.base, kind.set, id, ended)
    b.repeated = b.repeated or again
    return not again and code ~= -2 and code
  end
  b.ended = b.ended + 1
  if kind.discarded then finished.remember(ends.base, id, ended, memo_ms) end
  local found = fetch and quick_path.fetched(reply) and reply or nil
  if each then each(id, fetch, found) end
  if not fetch then return 0 end
  b.last = reply
  if not found then
    b.dry = true
    return 0
  end
  b.fetched, b.dry = b.fetched + 1, fetched_size.is_enough(found[1])
  return found
end

-- The same for all jobs, whose arguments begin at argv[first].
function batch_open.finish_all(argv, first, memo_ms, redis, each)
  local quiet, results = without_fetch.quiet(ends.base), batch_open.results
  for at = first, #argv, ends.FIELDS do
    results[#results + 1] = batch_open.finish(argv, at, memo_ms, redis, quiet, each)
  end
end

return batch_open
