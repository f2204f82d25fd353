--[[
  Lets many jobs in, all or none or each by itself: the bound is checked, then BullMQ's own add script runs for each.
  KEYS
    [1]  wait  [2] paused  [3] meta  [4] id  [5] completed  [6] delayed  [7] active  [8] events  [9] marker
    [10] prioritized  [11] pc  [12] …:meta:shape
  ARGV
    [1]  born of the shape that the caller knows, '' if none
    [2]  its rev
    [3]  id of a claim (claim-places) that the places come out of, or ''
    [4]  its lease from now on, ms
    [5]  '1' if each is admitted by itself
    then seven for each job: kind (standard, prioritized, delayed), BullMQ's three arguments, job id or '',
    deduplication id or '', cost
  Returns the answer of lib/admission, then 3 BullMQ's replies, 4 born, 5 rev, 6 news. Where each is admitted by itself,
  the reply of one that was refused is the answer of lib/admission, that of one that failed {0, the text of the error}.
]]
--- @include "lib/admission"
--- @include "lib/claims"
--- @include "lib/sleepers"
local FIELDS, FIRST = 7, 6
-- BullMQ's texts read KEYS and ARGV: each call of one of them is prepared there.
local keys, argv = {}, {}
for i = 1, 12 do keys[i] = KEYS[i] end
for i = 1, 5 do argv[i] = ARGV[i] end
local base = string.sub(keys[12], 1, -11)

local add = {}
function add.standard()
  --- @original addStandardJob
end
function add.prioritized()
  --- @original addPrioritizedJob
end
function add.delayed()
  --- @original addDelayedJob
end
local KEYS_OF = {
  standard = { 1, 2, 3, 4, 5, 6, 7, 8, 9 },
  prioritized = { 9, 3, 4, 10, 6, 5, 7, 8, 11 },
  delayed = { 9, 3, 4, 6, 5, 8 },
}

local prepared

local function add_job(at)
  local kind = ARGV[at]
  if kind ~= prepared then
    for i, from in ipairs(KEYS_OF[kind]) do KEYS[i] = keys[from] end
    prepared = kind
  end
  ARGV[1], ARGV[2], ARGV[3] = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  return add[kind]()
end

local now = redis_now()
local shape = shape_load(keys[12], base, now)
if shape_lost(shape, argv[1], argv[2]) then return { -1, {} } end

local function refusal_of_all()
  local new, seen = 0, {}
  for at = FIRST, #ARGV, FIELDS do
    if admission_is_new(base, ARGV[at + 4], ARGV[at + 5], seen) then
      new = new + 1
      local refusal = admission_cost_error(shape, tonumber(ARGV[at + 6]))
      if refusal then return refusal end
    end
  end
  -- A claim whose lease is over covers nothing any more.
  local uncovered = argv[3] == '' and new or new - claims_use(keys[12], base, argv[3], new, now, tonumber(argv[4]))
  return uncovered > 0 and admission_refusal(base, shape, now, uncovered)
end

local each = argv[5] == '1'
-- A job that may be a duplicate, or for which there may be no place, is looked at more closely.
local places = each and shape and admission_places(base, shape, now) or math.huge

local function admit(at)
  local costly = shape and shape.interval and admission_cost_error(shape, tonumber(ARGV[at + 6]))
  if (costly or places < 1) and admission_is_new(base, ARGV[at + 4], ARGV[at + 5], {}) then
    local refusal = costly or admission_refusal(base, shape, now, 1)
    if refusal then return refusal end
  end
  places = places - 1
  local done, reply = pcall(add_job, at)
  if not done then return { 0, type(reply) == 'table' and reply.err or tostring(reply) } end
  return reply
end

local refusal = shape and not each and refusal_of_all()
if refusal then return refusal end
local replies = {}
for at = FIRST, #ARGV, FIELDS do replies[#replies + 1] = each and admit(at) or add_job(at) end
if shape and (shape.interval or shape.limits) then sleepers_expect_delayed(base, now) end
return {
  1, {}, replies, shape and shape.born or '', shape and shape.rev or '',
  shape and shape_news(keys[12], shape, argv[1], argv[2]) or false,
}
