-- BullMQ's global concurrency (`concurrency` of …:meta) and the shape's are one value, so that BullMQ's scripts obey it. A
-- stock queue writes it past the shape. While the other side limits running jobs the smaller of both holds, and the stock
-- queue's comes back afterwards; else its word stands until the shape's changes.

-- What a stock queue has set, '' if nothing. own: the shape's by itself, ''; before: what the shape wrote last, or false
local function concurrency_of_stock(base, own, before, known)
  local current = redis.call('HGET', base .. 'meta', 'concurrency')
  if current ~= before then return current or '' end
  local known_own, stock = string.match(known or ':', '^(.*):(.*)$')
  return known_own == own and stock or ''
end

-- Returns the concurrency of the shape, that of BullMQ and, while the other side limits them, what is to be known then
-- (`ownConcurrency`: '<the shape's>:<a stock queue's>'); nil each where there is none. limit: the other side's, or nil
local function concurrency_resolve(base, own, limit, before, known)
  if not limit and not known then return own, own end
  local text = own and tostring(own) or ''
  local stock = concurrency_of_stock(base, text, before, known)
  if not limit then return own, tonumber(stock) or own end
  local least = math.min(limit, own or limit, tonumber(stock) or limit)
  return least, least, text .. ':' .. stock
end
