--[[
  Admits jobs that certainly fit together, or whose places are claimed: only BullMQ's own add script runs, for each. If
  they might not fit, nothing is done: lua/verbs/admit-bulk.lua handles them.
  KEYS
    [1]  wait  [2] paused  [3] meta  [4] id  [5] completed  [6] delayed  [7] active  [8] events  [9] marker
    [10] prioritized  [11] pc  [12] …:meta:shape
  ARGV
    [1]  the field `fits` of the shape that the caller knows, '' if it knows none
    [2]  the highest cost of the jobs
    [3]  '' or a claim (claim-places) that the places are taken from: 'id lease-ms first', with the id of the first job.
         The caller made all ids for this bulk and no job has a deduplication id
    then four for each job: kind (standard, prioritized), BullMQ's three arguments
  Returns {number of waiting jobs now, BullMQ's replies}; the reply of a job that failed is {the text of the error}. Nil if
  the jobs might not fit.
]]
local bulk = use 'admission/bulk'
local claims = use 'admission/claims'
local fits_surely = use 'admission/fits-surely'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local redis_now = use 'redis/redis-now'

local FIELDS, FIRST = 4, 4
local base = string.sub(KEYS[12], 1, -11)
local jobs = (#ARGV - FIRST + 1) / FIELDS

local claim = ARGV[3]
local fits, timed = fits_surely(KEYS[12], base, ARGV[1], jobs, tonumber(ARGV[2]), claim ~= '')
if not fits then return false end
-- A resent call is left to the other script, too.
if claim ~= '' and not claims.take(KEYS[12], base, claim, jobs, redis_now()) then return false end
local replies = {}
for at = FIRST, #ARGV, FIELDS do
  local done, reply = pcall(bulk.add, KEYS, ARGV, at)
  replies[#replies + 1] = done and reply or { type(reply) == 'table' and reply.err or tostring(reply) }
end
if next(touched.bases) then touched.wake() end
if timed then wake.head_changed(base) end
return { redis.call('LLEN', base .. 'wait'), replies }
