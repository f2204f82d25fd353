--[[
  Fails a job for good and keeps it as a dead letter, both or neither: BullMQ's add script for the letter, then its
  moveToFinished. Nothing is fetched.
  KEYS
    [1]  …:meta:shape
    then those of moveToFinished
    [2] [3] [4] [5] [6] [7] [8] [9] [10] [11]
    [12] the set of failed jobs
    [13] [14] [15]
    then those of addStandardJob, in the queue of dead letters
    [16] [17] [18] [19] [20] [21] [22] [23] [24]
  ARGV
    [1]  job id
    [2]  timestamp, ms
    then the others of moveToFinished
    [3] [4] [5] [6] [7]
    [8]  BullMQ's options, packed (the lock token among them)
    [9]
    then those of addStandardJob
    [10] its own arguments, packed (key prefix and id of the letter among them)
    [11] [12]
    then
    [13] 1 if the job is not kept (then its end is remembered instead)
    [14] how long, ms
  Returns BullMQ's code of moveToFinished. If the job no longer belongs to the caller, no letter is added.
  The same call sent twice fails the job once.
]]
local add_standard_job = use 'bullmq/addStandardJob'
local move_to_finished = use 'bullmq/moveToFinished'
local finished = use 'ends/finished'
local without_fetch = use 'ends/without-fetch'
local touched = use 'gate/touched'
local group_hooks = use 'groups/hooks'

local keys, argv = {}, {}
for i = 1, 24 do keys[i] = KEYS[i] end
for i = 1, 14 do argv[i] = ARGV[i] end
local base, id = string.sub(keys[1], 1, -11), argv[1]

local function owned()
  local token = cmsgpack.unpack(argv[8]).token
  if token ~= '0' and redis.call('GET', base .. id .. ':lock') ~= token then return false end
  return redis.call('LPOS', base .. 'active', id) and redis.call('EXISTS', base .. id) == 1
end

-- The step that may fail comes first: a job that did not end is fetched again, but one without its letter would be
-- lost. Redis does not roll back, so a partial letter is deleted: it would later look complete.
if owned() then
  for i = 1, 9 do KEYS[i] = keys[15 + i] end
  for i = 1, 3 do ARGV[i] = argv[9 + i] end
  local added, failure = pcall(add_standard_job.run, redis, KEYS, ARGV)
  if not added then
    local letter = cmsgpack.unpack(argv[10])
    redis.call('DEL', letter[1] .. letter[2])
    return type(failure) == 'table' and failure or { err = failure }
  end
  touched.note(cmsgpack.unpack(argv[10])[1])
end
for i = 1, 14 do KEYS[i] = keys[1 + i] end
for i = 1, 9 do ARGV[i] = argv[i] end
local hooked, store_groups = group_hooks.redis(without_fetch.quiet(base))
local code, again = finished.code(move_to_finished.run(hooked, KEYS, ARGV), base, keys[12], id, argv[2])
store_groups()
if code == 0 and not again then
  if argv[13] == '1' then finished.remember(base, id, argv[2], argv[14]) end
  without_fetch.frees_place(base, 1)
end
return code
