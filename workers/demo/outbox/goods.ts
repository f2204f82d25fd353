/** The goods in the example outbox: number, name, and price in cents. */
export const goods: readonly (readonly [sku: string, name: string, priceCents: number])[] = [
  ['LM-1001', 'Oak reading stand', 6450],
  ['LM-1002', 'Ash-glaze soup bowl “Söderåsen”', 2890],
  ['LM-1003', 'Crème brûlée ramekins, set of 4', 3200],
  ['LM-1004', 'Linen tea towel, 50 × 70 cm', 1450],
  ['LM-1005', 'Café press ½ l', 3999],
  ['LM-1006', 'Häkelnadel Nº 3½', 495],
  ['LM-1007', 'Mug “Ça va?”', 1275],
  ['LM-1008', 'Beeswax candle 20 cm, pair', 990],
  ['LM-1009', 'Jalapeño & piñón seed box', 745],
  ['LM-1010', '包丁 (kitchen knife, 165 mm)', 11900],
  ['LM-1011', 'Wool blanket “Fjällräven grå”', 8900],
  ['LM-1012', 'Naïve art calendar', 1890],
]
